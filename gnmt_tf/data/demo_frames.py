"""The sentences of the demonstration corpus, in English, French and German, with slots for values.

Second step of `gnmt demo-data`: reads nothing, gives `FRAMES`. A slot is `{kind}` or `{kind2}` with a kind of
`demo_values.KINDS`; every language has the same slots. No two English frames are alike, and the values stand where
no language has to inflect them (German quantities in the nominative or accusative only), so that each English
sentence has one right translation.
"""

from typing import NamedTuple


class Frame(NamedTuple):
    """One sentence in three languages; the field names are the language codes."""

    en: str
    fr: str
    de: str


FRAMES: tuple[Frame, ...] = (
    Frame(
        "The meeting on {full_date} at {time} costs {money}.",
        "La réunion du {full_date} à {time} coûte {money}.",
        "Die Sitzung am {full_date} um {time} Uhr kostet {money}.",
    ),
    Frame(
        "The {ordinal} meeting is on {full_date}.",
        "La {ordinal} réunion a lieu le {full_date}.",
        "Die {ordinal} Sitzung findet am {full_date} statt.",
    ),
    Frame(
        "Order {code} was delivered on {date}.",
        "La commande {code} a été livrée le {date}.",
        "Die Bestellung {code} wurde am {date} geliefert.",
    ),
    Frame(
        "Invoice {code} must be paid before {date}.",
        "La facture {code} doit être payée avant le {date}.",
        "Die Rechnung {code} muss vor dem {date} bezahlt werden.",
    ),
    Frame(
        "The invoice of {date} amounts to {money}.",
        "La facture du {date} s'élève à {money}.",
        "Die Rechnung vom {date} beträgt {money}.",
    ),
    Frame(
        "In {month_year}, {spelled} people visited the museum.",
        "En {month_year}, {spelled} personnes ont visité le musée.",
        "Im {month_year} besuchten {spelled} Personen das Museum.",
    ),
    Frame(
        "{spelled} people arrived in {month_year}.",
        "{spelled} personnes sont arrivées en {month_year}.",
        "{spelled} Personen kamen im {month_year} an.",
    ),
    Frame(
        "{spelled} students passed the exam on {weekday}.",
        "{spelled} étudiants ont réussi l'examen {weekday}.",
        "{spelled} Studenten haben am {weekday} die Prüfung bestanden.",
    ),
    Frame(
        "The book has {spelled} pages and costs {money}.",
        "Le livre compte {spelled} pages et coûte {money}.",
        "Das Buch hat {spelled} Seiten und kostet {money}.",
    ),
    Frame(
        "The hotel has {small} rooms and {spelled} employees.",
        "L'hôtel compte {small} chambres et {spelled} employés.",
        "Das Hotel hat {small} Zimmer und {spelled} Angestellte.",
    ),
    Frame(
        "The library has {large} books in {spelled} rooms.",
        "La bibliothèque a {large} livres dans {spelled} salles.",
        "Die Bibliothek hat {large} Bücher in {spelled} Räumen.",
    ),
    Frame(
        "The train to {city} leaves on {weekday} at {time}.",
        "Le train pour {city} part {weekday} à {time}.",
        "Der Zug nach {city} fährt am {weekday} um {time} Uhr ab.",
    ),
    Frame(
        "The flight from {city} to {city2} takes {duration}.",
        "Le vol de {city} à {city2} dure {duration}.",
        "Der Flug von {city} nach {city2} dauert {duration}.",
    ),
    Frame(
        "The road from {city} to {city2} is {distance} long.",
        "La route de {city} à {city2} mesure {distance}.",
        "Die Straße von {city} nach {city2} ist {distance} lang.",
    ),
    Frame("The river is {distance} long.", "Le fleuve mesure {distance} de long.", "Der Fluss ist {distance} lang."),
    Frame("The tower is {height} high.", "La tour mesure {height} de haut.", "Der Turm ist {height} hoch."),
    Frame("The garden measures {area}.", "Le jardin mesure {area}.", "Der Garten ist {area} groß."),
    Frame(
        "Prices rose by {percent} in {year}.",
        "Les prix ont augmenté de {percent} en {year}.",
        "Die Preise stiegen im Jahr {year} um {percent}.",
    ),
    Frame(
        "Sales fell by {percent} between {month_year} and {month_year2}.",
        "Les ventes ont baissé de {percent} entre {month_year} et {month_year2}.",
        "Die Verkäufe sanken zwischen {month_year} und {month_year2} um {percent}.",
    ),
    Frame(
        "The rate rose from {percent} to {percent2}.",
        "Le taux est passé de {percent} à {percent2}.",
        "Die Quote stieg von {percent} auf {percent2}.",
    ),
    Frame(
        "{percent} of the {large} voters said yes.",
        "{percent} des {large} électeurs ont dit oui.",
        "{percent} der {large} Wähler sagten ja.",
    ),
    Frame(
        "The price rose from {euros} to {euros2}.",
        "Le prix est passé de {euros} à {euros2}.",
        "Der Preis stieg von {euros} auf {euros2}.",
    ),
    Frame(
        "The parcel weighs {mass} and costs {money}.",
        "Le colis pèse {mass} et coûte {money}.",
        "Das Paket wiegt {mass} und kostet {money}.",
    ),
    Frame(
        "The ticket to {city} costs {named_money}.",
        "Le billet pour {city} coûte {named_money}.",
        "Die Fahrkarte nach {city} kostet {named_money}.",
    ),
    Frame(
        "{name} paid {named_money} on {date}.",
        "{name} a payé {named_money} le {date}.",
        "Am {date} zahlte {name} {named_money}.",
    ),
    Frame(
        "{name} earned {named_money} in {month_year}.",
        "{name} a gagné {named_money} en {month_year}.",
        "Im {month_year} verdiente {name} {named_money}.",
    ),
    Frame(
        "{name} called on {date} at {time}.",
        "{name} a appelé le {date} à {time}.",
        "{name} hat am {date} um {time} Uhr angerufen.",
    ),
    Frame(
        "{name} lives on the {ordinal} floor.",
        "{name} habite au {ordinal} étage.",
        "{name} wohnt im {ordinal} Stock.",
    ),
    Frame(
        "Please call {name} before {time}.",
        "Veuillez appeler {name} avant {time}.",
        "Bitte rufen Sie {name} vor {time} Uhr an.",
    ),
    Frame(
        "The temperature in {city} was {temperature} on {date}.",
        "La température à {city} était de {temperature} le {date}.",
        "Am {date} betrug die Temperatur in {city} {temperature}.",
    ),
    Frame("It is {temperature} in {city}.", "Il fait {temperature} à {city}.", "In {city} sind es {temperature}."),
    Frame(
        "The shop is open from {time} to {time2}.",
        "Le magasin est ouvert de {time} à {time2}.",
        "Das Geschäft ist von {time} bis {time2} Uhr geöffnet.",
    ),
    Frame(
        "The concert on {weekday} starts at {time}.",
        "Le concert de {weekday} commence à {time}.",
        "Das Konzert am {weekday} beginnt um {time} Uhr.",
    ),
    Frame(
        "School starts on {month_day} at {time}.",
        "L'école commence le {month_day} à {time}.",
        "Die Schule beginnt am {month_day} um {time} Uhr.",
    ),
    Frame(
        "The city of {city} has {large} inhabitants.",
        "La ville de {city} compte {large} habitants.",
        "Die Stadt {city} hat {large} Einwohner.",
    ),
    Frame(
        "The company sold {large} cars in {year}.",
        "L'entreprise a vendu {large} voitures en {year}.",
        "Im Jahr {year} verkaufte die Firma {large} Autos.",
    ),
    Frame(
        "The bridge in {city} was built in {year}.",
        "Le pont de {city} a été construit en {year}.",
        "Die Brücke in {city} wurde im Jahr {year} gebaut.",
    ),
    Frame(
        "The tank holds {volume} of water.", "Le réservoir contient {volume} d'eau.", "Der Tank fasst {volume} Wasser."
    ),
    Frame(
        "Add {volume} of milk and {mass} of sugar.",
        "Ajoutez {volume} de lait et {mass} de sucre.",
        "Geben Sie {volume} Milch und {mass} Zucker hinzu.",
    ),
    Frame(
        "The car drove {distance} at {speed}.",
        "La voiture a roulé {distance} à {speed}.",
        "Das Auto fuhr {distance} mit {speed}.",
    ),
    Frame(
        "The speed limit in {city} is {speed}.",
        "La vitesse à {city} est limitée à {speed}.",
        "Die Höchstgeschwindigkeit in {city} beträgt {speed}.",
    ),
    Frame(
        "Chapter {small} starts on page {small2}.",
        "Le chapitre {small} commence à la page {small2}.",
        "Kapitel {small} beginnt auf Seite {small2}.",
    ),
    Frame("The average is {decimal}.", "La moyenne est de {decimal}.", "Der Durchschnitt liegt bei {decimal}."),
    Frame(
        "The train was {duration} late on {weekday}.",
        "Le train avait {duration} de retard {weekday}.",
        "Der Zug hatte am {weekday} {duration} Verspätung.",
    ),
    Frame(
        "The course lasts {duration} and starts on {date}.",
        "Le cours dure {duration} et commence le {date}.",
        "Der Kurs dauert {duration} und beginnt am {date}.",
    ),
    Frame(
        "Room {small} is free from {date} to {date2}.",
        "La chambre {small} est libre du {date} au {date2}.",
        "Zimmer {small} ist vom {date} bis zum {date2} frei.",
    ),
    # French puts a no-break space before a colon.
    Frame("Departure: {full_date}, {time}", "Départ\u00a0: {full_date}, {time}", "Abfahrt: {full_date}, {time} Uhr"),
    Frame("Total: {money}", "Total\u00a0: {money}", "Gesamtbetrag: {money}"),
    Frame("Valid until {date}", "Valable jusqu'au {date}", "Gültig bis zum {date}"),
    Frame(
        "Discount of {percent} until {date}",
        "Remise de {percent} jusqu'au {date}",
        "{percent} Rabatt bis zum {date}",
    ),
)
